package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

	"gatehouse/firewall"
	"gatehouse/web/auth"
	"gatehouse/web/page"
)

// fail is the one place where an error of a handler becomes an answer.
func (rt *router) fail(w http.ResponseWriter, r *http.Request, err error) {
	if stale, ok := errors.AsType[page.StaleError](err); ok {
		rt.show(w, r, page.Refused{
			Status: http.StatusConflict, Title: "Changed in the meantime",
			Text: stale.Error() + " Nothing of yours was saved; both versions are below.",
		}, stale)
		return
	}
	if busy, ok := errors.AsType[auth.Throttled](err); ok {
		w.Header().Set("Retry-After", fmt.Sprint(int(busy.Wait.Seconds())+1))
		w.Header().Set("Connection", "close")
	}
	if e, ok := explain(err); ok {
		rt.show(w, r, e, page.StaleError{})
		return
	}
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the browser went away
	}
	id := rand.Text()[:8]
	rt.Log.Error("page failed", "id", id, "method", r.Method, "path", r.URL.Path, "err", err)
	rt.show(w, r, broken(id), page.StaleError{})
}

// explain says what a person may read of an error; false for the rest, which
// is ours to read.
func explain(err error) (page.Refused, bool) {
	if e, ok := errors.AsType[page.Refused](err); ok {
		return e, true
	}
	if e, ok := errors.AsType[page.NotFound](err); ok {
		return page.Refused{Status: http.StatusNotFound, Title: "Not found", Text: e.Error()}, true
	}
	if e, ok := errors.AsType[page.UnknownField](err); ok {
		return page.Refused{Status: http.StatusBadRequest, Title: "Not understood", Text: e.Error() + " Nothing was changed."}, true
	}
	if e, ok := errors.AsType[page.BadForm](err); ok {
		return page.Refused{Status: http.StatusBadRequest, Title: "Not understood", Text: e.Error() + " Nothing was changed."}, true
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return page.Refused{
			Status: http.StatusRequestEntityTooLarge, Title: "Too large",
			Text: fmt.Sprintf("This takes at most %d KiB. Nothing was changed.", e.Limit/1024),
		}, true
	}
	if e, ok := errors.AsType[auth.Throttled](err); ok {
		return page.Refused{Status: http.StatusTooManyRequests, Title: "Too many tries", Text: e.Error()}, true
	}
	if e, ok := errors.AsType[fullDisk](err); ok && e.Full() {
		return page.Refused{Status: http.StatusInsufficientStorage, Title: "The disk is full",
			Text: "The disk is full. Nothing was changed, and what runs goes on. Make room on the box and try again."}, true
	}
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		text := "Nothing was changed."
		for _, p := range ps {
			text += " " + p.Text
		}
		return page.Refused{Status: http.StatusUnprocessableEntity, Title: "Not saved", Text: text}, true
	}
	return ofCommit(err)
}

// fullDisk is the error of a store that has no room.
type fullDisk interface {
	error
	Full() bool
}

// broken is all that anybody outside learns of a fault of ours.
func broken(id string) page.Refused {
	return page.Refused{
		Status: http.StatusInternalServerError, Title: "This went wrong",
		Text: "The fault is on our side. The log of the box has it under " + id + ".",
	}
}

// show writes the error page, by plain words if even that fails.
func (rt *router) show(w http.ResponseWriter, r *http.Request, e page.Refused, stale page.StaleError) {
	f := page.Frame{Title: e.Title}
	if e.Status != http.StatusInternalServerError { // else what it asks may be what is broken
		f = page.FrameFor(r, e.Title, "")
	}
	if err := page.Render(w, r, e.Status, page.ErrorPage(f, e, stale)); err != nil {
		rt.Log.Error("error page failed", "err", err)
		http.Error(w, e.Text, e.Status)
	}
}
