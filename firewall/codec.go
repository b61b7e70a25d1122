package firewall

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrNewer is returned for a document of a schema that this program does not know.
var ErrNewer = errors.New("the configuration was written by a newer version")

const (
	maxDocument = 16 << 20 // bytes; security.md T27
	maxDepth    = 64
)

// Encode writes the canonical document: the same configuration gives the same bytes.
func Encode(c Config) ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return b, nil
}

// Decode reads one document and nothing behind it. Unknown fields, deep
// nesting and more than 16 MiB are refused; ErrNewer for a later schema.
// It does not Validate.
func Decode(b []byte) (Config, error) {
	var c Config
	if len(b) > maxDocument {
		return c, fmt.Errorf("decode configuration: %d bytes are more than %d", len(b), maxDocument)
	}
	if err := strict(b, &c); err != nil {
		var v struct {
			Schema int `json:"schema"`
		}
		if json.Unmarshal(b, &v) == nil && v.Schema > Schema {
			return c, ErrNewer
		}
		return c, fmt.Errorf("decode configuration: %w", err)
	}
	switch {
	case c.Schema > Schema:
		return c, ErrNewer
	case c.Schema < 1:
		return c, errors.New("decode configuration: the schema version is missing")
	}
	return c, nil
}

// strict decodes exactly one JSON value with known fields only.
func strict(b []byte, into any) error {
	if tooDeep(b) {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return nil
}

func tooDeep(b []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch ch := b[i]; {
		case inString && ch == '\\':
			i++
		case ch == '"':
			inString = !inString
		case inString:
		case ch == '{' || ch == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case ch == '}' || ch == ']':
			depth--
		}
	}
	return false
}

// Stamp names a configuration: the hash of its document, 32 hex digits. It is
// what the table in the kernel carries.
func (c Config) Stamp() string { return hashOf(c) }

// Hash names the state of one object; "" when it is not there. A form carries
// it, so that an edit of something that changed meanwhile is told.
func (c Config) Hash(r Ref) string {
	switch r.Kind {
	case "rule":
		if v, ok := c.Rule(ID(r.Key)); ok {
			return hashOf(v)
		}
	case "forward":
		if v, ok := c.Forward(ID(r.Key)); ok {
			return hashOf(v)
		}
	case "alias":
		if v, ok := c.Alias(Name(r.Key)); ok {
			return hashOf(v)
		}
	case "interface":
		if v, ok := c.Interface(Name(r.Key)); ok {
			return hashOf(v)
		}
	case "scope":
		if v, ok := c.Scope(Name(r.Key)); ok {
			v.Statics = nil // objects of their own
			return hashOf(v)
		}
	case "static":
		if _, v, ok := c.Static(ID(r.Key)); ok {
			return hashOf(v)
		}
	case "system":
		return hashOf(c.System)
	case "admin":
		return hashOf(c.Admin)
	case "sources":
		return hashOf(c.Sources)
	case "all":
		return c.Stamp()
	}
	return ""
}

// Hash is what Config.Hash gives for this rule, without looking for it.
func (r Rule) Hash() string { return hashOf(r) }

func hashOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // values of this package always encode
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
