package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"gatehouse/firewall/ruleset"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// program is a rule as the kernel runs it.
type program struct {
	exprs attrs     // the expressions, each an NFTA_LIST_ELEM
	anon  []anonSet // its anonymous sets
	fix   []int     // where in exprs the id of each anonymous set stands
	err   error
}

// anonSet is a set without a name, which lives and dies with its rule.
type anonSet struct {
	def      definition
	order    attrs
	elements []element
}

func (s anonSet) name() string {
	if s.def.flags&unix.NFT_SET_MAP != 0 {
		return "__map%d"
	}
	return "__set%d"
}

// assemble translates a rule. Each step is the one that nft takes for the same text.
func assemble(r ruleset.Rule) (*program, error) {
	p := &program{}
	for _, s := range mergePorts(r.Stmts) {
		p.stmt(s)
	}
	return p, p.err
}

// put appends an expression.
func (p *program) put(e expr.Any) {
	b, err := expr.Marshal(unix.NFPROTO_INET, e)
	if err != nil && p.err == nil {
		p.err = err
	}
	p.exprs.nest(unix.NFTA_LIST_ELEM, b)
}

// putRaw appends an expression that the library cannot say.
func (p *program) putRaw(name string, data attrs) {
	var e attrs
	e.text(unix.NFTA_EXPR_NAME, name)
	e.nest(unix.NFTA_EXPR_DATA, data)
	p.exprs.nest(unix.NFTA_LIST_ELEM, e)
}

func (p *program) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// lookupAnon matches register 1 against a new anonymous set, or goes where the map says.
func (p *program) lookupAnon(set anonSet, not bool) {
	var a attrs
	a.u32(unix.NFTA_LOOKUP_SREG, unix.NFT_REG_1)
	if set.def.flags&unix.NFT_SET_MAP != 0 {
		a.u32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	}
	if not {
		a.u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
	}
	a.text(unix.NFTA_LOOKUP_SET, set.name())
	a.u32(unix.NFTA_LOOKUP_SET_ID, 0)
	p.putRaw("lookup", a)
	p.anon = append(p.anon, set)
	p.fix = append(p.fix, len(p.exprs)-4) // the id is the last word
}

// userData is what the rule carries beside its code: nft's comment
// (libnftnl, NFTNL_UDATA_RULE_COMMENT), and our hash of the rule in its chain.
const (
	userComment = 0
	userHash    = 'g'
	hashLen     = 16
)

// userData must be asked for before emit writes the ids of anonymous sets.
func (p *program) userData(chain, comment string) attrs {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00", chain, comment)
	h.Write(p.exprs)
	for _, s := range p.anon {
		fmt.Fprintf(h, "%+v", s.def)
		for _, e := range s.elements {
			h.Write(e.body())
		}
	}
	var u attrs
	if comment != "" {
		u = append(u, userComment, byte(len(comment)+1))
		u = append(append(u, comment...), 0)
	}
	return append(append(u, userHash, hashLen), h.Sum(nil)[:hashLen]...)
}

// fromUserData is the comment and hash that userData put there.
func fromUserData(u []byte) (comment, hash string) {
	for len(u) >= 2 && len(u) >= 2+int(u[1]) {
		typ, value := u[0], u[2:2+int(u[1])]
		switch typ {
		case userComment:
			comment = str(value)
		case userHash:
			hash = string(value)
		}
		u = u[2+len(value):]
	}
	return comment, hash
}

// rule appends the rule and its anonymous sets to the end of the chain.
func (b *batch) rule(chain string, n int, r ruleset.Rule) {
	what := fmt.Sprintf("rule %d of chain %s", n, chain)
	p, err := assemble(r)
	if err == nil && len(r.Comment) > 128 {
		err = fmt.Errorf("comment of %d bytes, at most 128", len(r.Comment))
	}
	if err == nil && len(p.exprs) > maxAttr {
		err = fmt.Errorf("rule of %d bytes", len(p.exprs))
	}
	if err != nil {
		b.refuse(r.Origin, what, err)
		return
	}
	user := p.userData(chain, r.Comment)
	for i, s := range p.anon {
		id := b.setID()
		binary.BigEndian.PutUint32(p.exprs[p.fix[i]:], id)
		b.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, r.Origin, what, newSet(s.name(), id, s.def, s.order))
		b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, r.Origin, s.name(), id, s.elements)
	}
	var a attrs
	a.text(unix.NFTA_RULE_TABLE, ruleset.Table)
	a.text(unix.NFTA_RULE_CHAIN, chain)
	a.nest(unix.NFTA_RULE_EXPRESSIONS, p.exprs)
	a.raw(unix.NFTA_RULE_USERDATA, user)
	b.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, r.Origin, what, a)
}

// mergePorts joins an exact source port and an exact destination port to one
// comparison of four bytes, as nft does, whatever match stands between them.
// (nft 1.0.6 does so even across a counter, which then counts other packets.)
func mergePorts(stmts []ruleset.Stmt) []ruleset.Stmt {
	out := stmts
	src, dst := -1, -1
	for i, s := range stmts {
		m, ok := s.(ruleset.Match)
		switch {
		case !ok:
			if !plainMatch(s) {
				src, dst = -1, -1
			}
			continue
		case m.Not || m.Set != "" || len(m.In) != 1 || !m.In[0].Single() || len(m.In[0].Lo) != 2:
			continue
		}
		switch m.Field {
		case ruleset.THSport, ruleset.TCPSport, ruleset.UDPSport, ruleset.SCTPSport:
			src = i
		case ruleset.THDport, ruleset.TCPDport, ruleset.UDPDport, ruleset.SCTPDport:
			dst = i
		default:
			continue
		}
		if src >= 0 && dst >= 0 {
			both := portPair(bytes.Join([][]byte{[]byte(stmts[src].(ruleset.Match).In[0].Lo), []byte(stmts[dst].(ruleset.Match).In[0].Lo)}, nil))
			out = append([]ruleset.Stmt{}, stmts...)
			out[src] = both
			return mergePorts(append(out[:dst], out[dst+1:]...))
		}
	}
	return out
}

// plainMatch reports whether s is a comparison without being a Match.
func plainMatch(s ruleset.Stmt) bool {
	switch s.(type) {
	case ruleset.NoRouteBack, portPair:
		return true
	}
	return false
}

// portPair matches source and destination port, four bytes in network order.
type portPair string

// String is for errors.
func (p portPair) String() string { return fmt.Sprintf("ports %x", string(p)) }
