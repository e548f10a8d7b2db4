// Package rls is Envoy's rate limit service (envoy.service.ratelimit.v3) over a
// Limiter, with the rules of an envoyproxy/ratelimit configuration, unchanged.
//
// A call carries a domain and some descriptors, each a list of entries (key, value).
// It walks through
//
//	service.go  holds it to its bounds, decides, and writes the answer
//	match.go    finds each descriptor's rule: pure, and without allocation
//	key.go      makes an identifier of each descriptor
//	charge.go   counts what was spent before the call, whatever the limit says
//	headers.go  tells HTTP clients in the fields they know
//
// kuadrant.go answers the calls of Kuadrant's gateways by the same rules.
//
// and rules.go reads what match.go walks over.
//
// # What is as in envoyproxy/ratelimit
//
// Which rule a descriptor matches, what is unlimited, replaced, shadowed or a quota,
// units and their lengths, hits_addend, the codes.
//
// # What differs
//
//   - The window slides, and only accepted cost is counted. A call is all or nothing:
//     if one of its descriptors is over its limit, none of them is charged.
//   - limit_remaining is of the sliding window; duration_until_reset is the time to
//     the end of its current cell.
//   - An entry (key, value) is matched as the pair that it is. There, a rule with the
//     key a_b also matches the pair (a, b), because both are joined by "_" first.
//   - A limit that the descriptor itself carries applies in domains without rules too.
//   - A call at fault is invalid_argument and names the fields; there it is unknown.
package rls
