package page

import (
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"gatehouse/firewall"
)

// Field is one labelled control of a form. The zero Type is a text input; with
// Options it is a select, with Rows a text area.
type Field struct {
	Name, Label string
	Value       string   // as typed, or the chosen option
	Values      []string // chosen options of a select with Many
	Hint        string   // below the control
	Error       string   // below the control; marks it invalid
	Type        string   // "password", "search"; empty = text
	Options     []Option
	Many        bool     // several options
	Rows        int      // text area of so many lines
	List        []string // suggestions
	Names       []string // what each of List is called; shorter or nil: nothing
	Complete    string   // autocomplete token, empty = off
	Mode        string   // inputmode: numeric for numbers, never type=number
	Placeholder string
	Max         int // characters, 0 = no limit in the browser
	Mono        bool
	Required    bool
	Off         bool // disabled: shown, not sent
	Focus       bool // takes the focus when the page opens
	Zone        bool // the script fills in the time zone of the browser
}

// Option is one choice of a select.
type Option struct{ Value, Label string }

// Options makes options whose value is their label.
func Options(values ...string) []Option {
	os := make([]Option, len(values))
	for i, v := range values {
		os[i] = Option{v, v}
	}
	return os
}

// name is what the suggestion at i is called beside its value.
func (f Field) name(i int) string {
	if i < len(f.Names) {
		return f.Names[i]
	}
	return ""
}

func (f Field) id() string { return FieldID(f.Name) }

// FieldID is the id of the control with a form name: what a summary links to.
func FieldID(name string) string { return "f-" + name }

// described lists the ids of hint and error for aria-describedby.
func (f Field) described() string {
	var ids []string
	if f.Error != "" {
		ids = append(ids, f.id()+"-error")
	}
	if f.Hint != "" {
		ids = append(ids, f.id()+"-hint")
	}
	return strings.Join(ids, " ")
}

func (f Field) complete() string {
	if f.Complete == "" {
		return "off"
	}
	return f.Complete
}

func (f Field) chosen(value string) bool {
	if !f.Many {
		return f.Value == value
	}
	for _, v := range f.Values {
		if v == value {
			return true
		}
	}
	return false
}

// Check is a check box or, with Radio, one of several choices.
type Check struct {
	Name, Value string // Value empty = "1"
	Label, Hint string
	On          bool
	Off         bool // disabled
	Radio       bool
}

func (c Check) value() string {
	if c.Value == "" {
		return "1"
	}
	return c.Value
}

// Beside strips the object's Ref from the problems that are about it, so that
// their Field is the form's field name, and puts them first; the others follow
// as they are and are shown in the summary only.
func Beside(ps firewall.Problems, ref firewall.Ref) firewall.Problems {
	var own, rest firewall.Problems
	for _, p := range ps {
		if name, mine := strings.CutPrefix(p.Field, ref.String()+"."); mine {
			own = append(own, firewall.Problem{Field: name, Text: p.Text})
		} else {
			rest = append(rest, p)
		}
	}
	return append(own, rest...)
}

// ErrorOf joins the texts of the problems of one form field.
func ErrorOf(ps firewall.Problems, field string) string {
	var texts []string
	for _, p := range ps {
		if p.Field == field {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, " ")
}

// linked reports whether a problem names a field of the form on this page.
func linked(p firewall.Problem) bool {
	return p.Field != "" && !strings.ContainsAny(p.Field, "/.")
}

// Column is a heading of a table.
type Column struct {
	Label string
	Num   bool // right aligned
	Quiet bool // the label is for screen readers only: actions, check boxes
	// Href sorts by this column, or the other way round; Sorted is how it is
	// sorted now: "ascending", "descending" or empty.
	Href, Sorted string
}

// tail tells the ids of several boxes or buttons with one name apart.
func tail(c Check) string {
	if c.Radio || c.Value != "" {
		return "-" + c.Value
	}
	return ""
}

// control gives the attributes that inputs, selects and text areas share.
func control(f Field) templ.OrderedAttributes {
	var as templ.OrderedAttributes
	add := func(on bool, key string, value any) {
		if on {
			as = append(as, templ.KeyValue[string, any]{Key: key, Value: value})
		}
	}
	add(f.described() != "", "aria-describedby", f.described())
	add(f.Error != "", "aria-invalid", "true")
	add(len(f.Options) == 0, "autocomplete", f.complete())
	add(f.Mode != "", "inputmode", f.Mode)
	add(f.Placeholder != "", "placeholder", f.Placeholder)
	add(f.Max > 0, "maxlength", strconv.Itoa(f.Max))
	add(len(f.List) > 0, "list", f.id()+"-list")
	add(f.Required, "required", true)
	add(f.Off, "disabled", true)
	add(f.Focus, "autofocus", true)
	add(f.Zone, "data-zone", true)
	return as
}
