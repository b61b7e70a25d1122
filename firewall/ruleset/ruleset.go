// Package ruleset is the compiled form: one inet table of sets, chains and
// rules as values. String gives nft syntax that nft -f loads; firewall/kernel
// turns the same values into netlink messages. Nothing here decides anything.
package ruleset

import "time"

// Table is the name of our one table, of family inet.
const Table = "gatehouse"

// StampChain is a chain that no hook reaches; the comment of its only rule is the Stamp.
const StampChain = "stamp"

// Ruleset is the whole table as it should stand in the kernel.
type Ruleset struct {
	Stamp    string    // names the configuration it was compiled from
	Counters []Counter // named counters; a re-add keeps their values
	Sets     []Set
	Chains   []Chain // base chains have a Hook
}

// Origin is the object of the configuration that a part comes from: "rule/01J...",
// "forward/01J...", "interface/WAN", or "auto/anti-lockout". Errors of the kernel are told by it.
type Origin string

// Counter is a named counter, and its value when read back.
type Counter struct {
	Name    string
	Packets uint64
	Bytes   uint64
}

// Set is a named set, or a map when Data is set.
type Set struct {
	Name     string
	Origin   Origin
	Key      []Type // more than one: concatenation
	Data     []Type // of a map
	Interval bool
	Timeout  bool // elements may carry a timeout
	Dynamic  bool // rules add elements
	Counter  bool // each element counts the packets that it was found for
	Size     uint32
	// Meter: rules add the elements, each with a limit of its own (Meter), and
	// nobody else does. A member put in by hand would carry no limit.
	Meter bool
	// Runtime: the members belong to a service, which fills them without a
	// recompile. They survive applies and are not compared; Elements is what a
	// new set starts with.
	Runtime  bool
	Elements []Element
}

// Element is one member of a set: one Range for each field of its key.
type Element struct {
	Key     []Range
	Data    []Value // of a map
	Timeout time.Duration
	Left    time.Duration // read back: what is left of Timeout
	Packets uint64        // of a set with Counter: what it counted, or shall go on from
	Bytes   uint64
}

// Member is an element of the named set: what services put in, take out and read.
type Member struct {
	Set string
	Element
}

// Chain is a base chain (with a Hook) or one that rules jump to.
type Chain struct {
	Name  string
	Hook  *Hook
	Rules []Rule
}

// Hook ties a base chain to a place in the packet's way.
type Hook struct {
	Type     string // filter, nat
	Name     string // ingress, prerouting, input, forward, output, postrouting
	Priority int
	Drop     bool   // policy drop, else accept
	Device   string // of an ingress hook; the chain is left out while the device is absent
}

// Rule is one line of a chain.
type Rule struct {
	Origin  Origin
	Comment string // 128 bytes at most: ids, never free text (kernel fact 6)
	Stmts   []Stmt
}
