package node

import (
	"github.com/weirhq/weir/dataplane"
)

// fastpathRequest is a LimitRequest in the plainest JSON: one object of known fields, each at most once, with strings
// of printable ASCII without escapes, and whole numbers in digits, with or without quotes.
type fastpathRequest struct {
	dataplane.Request
	durationMs int64
	seen       uint8 // one bit for each field
}

// readFastpath reads body and checks the service's bounds. ok is false for every body that it does not support, valid
// or invalid.
func readFastpath(body []byte) (q fastpathRequest, ok bool) {
	var workspace, namespace, identifier []byte
	p := scanner{body}
	if !p.take('{') {
		return q, false
	}
	for first := true; !p.take('}'); first = false {
		if !first && !p.take(',') {
			return q, false
		}
		name, ok := p.text()
		if !ok || !p.take(':') {
			return q, false
		}
		var bit uint8
		switch string(name) {
		case "workspace":
			bit = 1
			workspace, ok = p.text()
		case "namespace":
			bit = 2
			namespace, ok = p.text()
		case "identifier":
			bit = 4
			identifier, ok = p.text()
		case "limit":
			bit = 8
			q.Limit, ok = p.number()
		case "duration_ms", "durationMs":
			bit = 16
			q.durationMs, ok = p.number()
		case "cost":
			bit = 32
			q.Cost, ok = p.number()
		default:
			return q, false
		}
		if !ok || q.seen&bit != 0 {
			return q, false
		}
		q.seen |= bit
	}
	if p.space(); len(p.rest) > 0 {
		return q, false
	}
	q.Workspace, q.Namespace, q.Identifier = string(workspace), string(namespace), string(identifier)
	return q, complete(&q.Request, uint64(q.durationMs))
}

// scanner takes JSON from the front of rest.
type scanner struct{ rest []byte }

func (p *scanner) space() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\n' || p.rest[0] == '\t' || p.rest[0] == '\r') {
		p.rest = p.rest[1:]
	}
}

// take takes white space and c, if c is next.
func (p *scanner) take(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// text takes a string, without its quotes.
func (p *scanner) text() ([]byte, bool) {
	if !p.take('"') {
		return nil, false
	}
	for i, c := range p.rest {
		if c == '"' {
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text, true
		}
		if c < ' ' || c > '~' || c == '\\' {
			return nil, false
		}
	}
	return nil, false
}

// digitsMax keeps a number from overflowing; bounds are checked later.
const digitsMax = 18

// number takes digits, in quotes or not.
func (p *scanner) number() (n int64, ok bool) {
	quoted := p.take('"')
	if !quoted {
		p.space()
	}
	digits := 0
	for digits < len(p.rest) && p.rest[digits] >= '0' && p.rest[digits] <= '9' {
		n = 10*n + int64(p.rest[digits]-'0')
		if digits++; digits > digitsMax {
			return 0, false
		}
	}
	if digits == 0 || digits > 1 && p.rest[0] == '0' {
		return 0, false
	}
	p.rest = p.rest[digits:]
	if !quoted {
		return n, true // the caller checks that a comma or brace follows
	}
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return 0, false
	}
	p.rest = p.rest[1:]
	return n, true
}
