package web

import (
	"errors"
	"net/http"

	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// ofCommit says what a person may read of an error of the writer; false for an
// error of another kind.
func ofCommit(err error) (page.Refused, bool) {
	if e, ok := errors.AsType[*commit.TestingError](err); ok {
		return page.Refused{Status: http.StatusConflict, Title: "Somebody is testing",
			Text: e.Error() + ". You can go on editing; Apply has to wait."}, true
	}
	if e, ok := errors.AsType[*commit.NeededError](err); ok {
		return page.Refused{Status: http.StatusConflict, Title: "Still needed",
			Text: "This change cannot be discarded alone. A later one needs it: " + e.By + " (" + e.Why + "). Discard that one first."}, true
	}
	if e, ok := errors.AsType[*commit.StaleError](err); ok {
		return page.Refused{Status: http.StatusConflict, Title: "Changed in the meantime",
			Text: "Nothing of yours was saved. " + e.Error() + "."}, true
	}
	if e, ok := errors.AsType[*commit.SafeModeError](err); ok {
		return page.Refused{Status: http.StatusServiceUnavailable, Title: "SAFE MODE", Text: e.Error() + "."}, true
	}
	if e, ok := errors.AsType[*commit.RefusedError](err); ok {
		return page.Refused{Status: http.StatusUnprocessableEntity, Title: "The kernel refused it", Text: e.Error() + "."}, true
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{commit.ErrNothing, "There is nothing to apply: the draft is empty."},
		{commit.ErrNoTrial, "Nothing waits for an answer any more. The page shows what runs now."},
		{commit.ErrNoUndo, "There is nothing to take back any more."},
		{commit.ErrConnection, "A confirm counts only on a connection opened after the apply. Try once more."},
		{commit.ErrTooLate, "The time to confirm is over; the configuration from before comes back."},
		{commit.ErrExtended, "The time was extended three times already."},
		{commit.ErrReviewed, "The draft, or what runs, is not as you reviewed it any more. Nothing was done: review it again."},
		{commit.ErrNoRevision, "This revision is not kept any more."},
	} {
		if errors.Is(err, known.err) {
			return page.Refused{Status: http.StatusConflict, Title: "Not done", Text: known.text}, true
		}
	}
	return page.Refused{}, false
}
