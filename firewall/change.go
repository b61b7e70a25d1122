package firewall

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Ref names one object of a configuration: what a change is about, and what
// conflicts are told by. Kinds: rule, forward, static (Key: id), alias,
// interface, scope (Key: name), system, admin, sources and all (no Key).
type Ref struct{ Kind, Key string }

// String is rule/01J... or admin.
func (r Ref) String() string {
	if r.Key == "" {
		return r.Kind
	}
	return r.Kind + "/" + r.Key
}

// Change is one typed edit. Apply gives the changed copy, or an error that
// says why it does not fit this configuration. String is the audit line.
type Change interface {
	Apply(Config) (Config, error)
	Ref() Ref
	String() string
}

// Place says where in the list an object goes: before or after a neighbour,
// never at a position. The zero value is the end.
type Place struct {
	Before ID `json:"before,omitempty"`
	After  ID `json:"after,omitempty"`
}

// The changes. Add fails when the object is there, Update and Delete when it is not.
type (
	// AddRule puts a new rule at Place.
	AddRule struct {
		Rule  Rule  `json:"rule"`
		Place Place `json:"place,omitzero"`
	}
	// UpdateRule replaces a rule where it stands.
	UpdateRule struct {
		Rule Rule `json:"rule"`
	}
	// MoveRule moves a rule to Place.
	MoveRule struct {
		ID    ID    `json:"id"`
		Place Place `json:"place,omitzero"`
	}
	// DeleteRule removes a rule.
	DeleteRule struct {
		ID    ID     `json:"id"`
		Descr string `json:"descr,omitempty"` // for the audit line
	}
	// AddForward adds a forward, and the linked pass rule named in it as the last rule.
	AddForward struct {
		Forward Forward `json:"forward"`
	}
	// UpdateForward replaces a forward; its linked rule follows, appears or goes.
	UpdateForward struct {
		Forward Forward `json:"forward"`
	}
	// DeleteForward removes a forward and its linked rule.
	DeleteForward struct {
		ID    ID     `json:"id"`
		Descr string `json:"descr,omitempty"`
	}
	// AddAlias adds an alias.
	AddAlias struct {
		Alias Alias `json:"alias"`
	}
	// UpdateAlias replaces the alias called Name; a new name is followed by every use.
	UpdateAlias struct {
		Name  Name  `json:"name"`
		Alias Alias `json:"alias"`
	}
	// DeleteAlias removes an alias.
	DeleteAlias struct {
		Name Name `json:"name"`
	}
	// ReplaceAlias puts the alias New in the place of every use of Old, and removes Old.
	ReplaceAlias struct {
		Old Name `json:"old"`
		New Name `json:"new"`
	}
	// AddInterface gives a port a role.
	AddInterface struct {
		Interface Interface `json:"interface"`
	}
	// UpdateInterface replaces the interface called Name; a new name is followed by every use.
	UpdateInterface struct {
		Name      Name      `json:"name"`
		Interface Interface `json:"interface"`
	}
	// DeleteInterface removes an interface, its scope, and the rules and forwards of its list.
	DeleteInterface struct {
		Name Name `json:"name"`
	}
	// PutScope sets the DHCP scope of an interface; static mappings stay as they are.
	PutScope struct {
		Scope Scope `json:"scope"`
	}
	// AddStatic adds a static mapping to the scope of In.
	AddStatic struct {
		In     Name        `json:"in"`
		Static StaticLease `json:"static"`
	}
	// UpdateStatic replaces a static mapping.
	UpdateStatic struct {
		Static StaticLease `json:"static"`
	}
	// DeleteStatic removes a static mapping.
	DeleteStatic struct {
		ID    ID     `json:"id"`
		Descr string `json:"descr,omitempty"`
	}
	// SetSystem sets how the box calls itself.
	SetSystem struct {
		System System `json:"system"`
	}
	// SetAdmin sets where the web pages answer.
	SetAdmin struct {
		Admin Admin `json:"admin"`
	}
	// SetLimit gives a rule another limit and leaves the rest of it alone: a rule that a forward made, too.
	SetLimit struct {
		Rule  ID     `json:"rule"`
		Limit Limit  `json:"limit,omitzero"`
		Descr string `json:"descr,omitempty"` // for the audit line
	}
	// SetSources sets how sources are told apart.
	SetSources struct {
		Sources Sources `json:"sources"`
	}
	// ReplaceAll puts a whole configuration in place: a restored revision.
	ReplaceAll struct {
		Config Config `json:"config"`
		Why    string `json:"why,omitempty"` // "Restore revision 12"
	}
)

// kinds is every change by its name in JSON.
var kinds = func() map[string]reflect.Type {
	m := map[string]reflect.Type{}
	for _, c := range []Change{AddRule{}, UpdateRule{}, MoveRule{}, DeleteRule{}, AddForward{}, UpdateForward{}, DeleteForward{},
		AddAlias{}, UpdateAlias{}, DeleteAlias{}, ReplaceAlias{}, AddInterface{}, UpdateInterface{}, DeleteInterface{},
		PutScope{}, AddStatic{}, UpdateStatic{}, DeleteStatic{}, SetSystem{}, SetAdmin{}, SetLimit{}, SetSources{}, ReplaceAll{}} {
		m[reflect.TypeOf(c).Name()] = reflect.TypeOf(c)
	}
	return m
}()

type envelope struct {
	Kind   string          `json:"kind"`
	Change json.RawMessage `json:"change"`
}

// EncodeChange writes a change with its kind.
func EncodeChange(c Change) ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode change: %w", err)
	}
	return json.Marshal(envelope{reflect.TypeOf(c).Name(), b})
}

// DecodeChange reads what EncodeChange wrote; unknown kinds and fields are refused.
func DecodeChange(b []byte) (Change, error) {
	var e envelope
	if err := strict(b, &e); err != nil {
		return nil, fmt.Errorf("decode change: %w", err)
	}
	t, ok := kinds[e.Kind]
	if !ok {
		return nil, fmt.Errorf("decode change: unknown kind %q", e.Kind)
	}
	p := reflect.New(t)
	if err := strict(e.Change, p.Interface()); err != nil {
		return nil, fmt.Errorf("decode %s: %w", e.Kind, err)
	}
	return p.Elem().Interface().(Change), nil
}

// Ref is the rule.
func (c AddRule) Ref() Ref { return Ref{"rule", string(c.Rule.ID)} }

// Ref is the rule.
func (c UpdateRule) Ref() Ref { return Ref{"rule", string(c.Rule.ID)} }

// Ref is the rule.
func (c MoveRule) Ref() Ref { return Ref{"rule", string(c.ID)} }

// Ref is the rule.
func (c DeleteRule) Ref() Ref { return Ref{"rule", string(c.ID)} }

// Ref is the forward.
func (c AddForward) Ref() Ref { return Ref{"forward", string(c.Forward.ID)} }

// Ref is the forward.
func (c UpdateForward) Ref() Ref { return Ref{"forward", string(c.Forward.ID)} }

// Ref is the forward.
func (c DeleteForward) Ref() Ref { return Ref{"forward", string(c.ID)} }

// Ref is the alias.
func (c AddAlias) Ref() Ref { return Ref{"alias", string(c.Alias.Name)} }

// Ref is the alias as it was called.
func (c UpdateAlias) Ref() Ref { return Ref{"alias", string(c.Name)} }

// Ref is the alias.
func (c DeleteAlias) Ref() Ref { return Ref{"alias", string(c.Name)} }

// Ref is the alias that goes.
func (c ReplaceAlias) Ref() Ref { return Ref{"alias", string(c.Old)} }

// Ref is the interface.
func (c AddInterface) Ref() Ref { return Ref{"interface", string(c.Interface.Name)} }

// Ref is the interface as it was called.
func (c UpdateInterface) Ref() Ref { return Ref{"interface", string(c.Name)} }

// Ref is the interface.
func (c DeleteInterface) Ref() Ref { return Ref{"interface", string(c.Name)} }

// Ref is the scope.
func (c PutScope) Ref() Ref { return Ref{"scope", string(c.Scope.In)} }

// Ref is the mapping.
func (c AddStatic) Ref() Ref { return Ref{"static", string(c.Static.ID)} }

// Ref is the mapping.
func (c UpdateStatic) Ref() Ref { return Ref{"static", string(c.Static.ID)} }

// Ref is the mapping.
func (c DeleteStatic) Ref() Ref { return Ref{"static", string(c.ID)} }

// Ref is the system.
func (c SetSystem) Ref() Ref { return Ref{Kind: "system"} }

// Ref is the web pages.
func (c SetAdmin) Ref() Ref { return Ref{Kind: "admin"} }

// Ref is the rule.
func (c SetLimit) Ref() Ref { return Ref{"rule", string(c.Rule)} }

// Ref is how sources are told apart.
func (c SetSources) Ref() Ref { return Ref{Kind: "sources"} }

// Ref is the whole configuration.
func (c ReplaceAll) Ref() Ref { return Ref{Kind: "all"} }

// put gives list with v added or, when replace, put where its like stands.
func put[T any](list []T, v T, same func(T) bool, what string, replace bool) ([]T, error) {
	i := slices.IndexFunc(list, same)
	switch {
	case replace && i < 0:
		return nil, fmt.Errorf("%s is not there any more", what)
	case !replace && i >= 0:
		return nil, fmt.Errorf("%s is already there", what)
	case !replace:
		return append(slices.Clone(list), v), nil
	}
	list = slices.Clone(list)
	list[i] = v
	return list, nil
}

// drop gives list without the one that is meant.
func drop[T any](list []T, same func(T) bool, what string) ([]T, error) {
	i := slices.IndexFunc(list, same)
	if i < 0 {
		return nil, fmt.Errorf("%s is not there any more", what)
	}
	return slices.Delete(slices.Clone(list), i, i+1), nil
}
