package page

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// Toast is a sentence about what was just done, shown once, with an optional
// way back. It travels in a cookie of the browser: the box keeps nothing.
type Toast struct {
	Text string `json:"t"`           // empty = none
	Undo string `json:"u,omitempty"` // path that a POST takes it back with
	With string `json:"w,omitempty"` // value of the form field "undo" sent with it
}

const toastName = "__Host-toast"

// Say shows the toast on the next page that this browser loads.
func Say(w http.ResponseWriter, t Toast) {
	b, err := json.Marshal(t)
	if err != nil {
		return // three strings always marshal
	}
	http.SetCookie(w, toastCookie(base64.RawURLEncoding.EncodeToString(b), 60))
}

func toastCookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: toastName, Value: value, Path: "/", MaxAge: age,
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// toastFrom reads the cookie; false when there is none. A cookie that is not
// ours to read is as good as none.
func toastFrom(r *http.Request) (Toast, bool) {
	c, err := r.Cookie(toastName)
	if err != nil || c.Value == "" || len(c.Value) > 2048 {
		return Toast{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return Toast{}, true
	}
	var t Toast
	if json.Unmarshal(b, &t) != nil {
		return Toast{}, true
	}
	if t.Undo != "" {
		t.Undo = Local(t.Undo)
	}
	return t, true
}
