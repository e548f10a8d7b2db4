// Package rls is Envoy's rate limit service (envoy.service.ratelimit.v3) over a Limiter. It uses the rules of an
// envoyproxy/ratelimit configuration, unchanged.
//
// A call carries a domain and some descriptors. Each descriptor is a list of entries (key, value). The files are in the
// order in which they handle a call:
//
//	service.go  checks the bounds, decides, and writes the response
//	match.go    finds each descriptor's rule, without side effects and without allocation
//	key.go      builds the identifier of each descriptor
//	charge.go   counts a cost that was spent before the call, even above the limit
//	headers.go  writes the headers that HTTP clients know
//
//	kuadrant.go responds to the calls of Kuadrant's gateways with the same rules.
//
// rules.go reads the rules that match.go searches.
//
// # The same as in envoyproxy/ratelimit
//
// These features work as in envoyproxy/ratelimit: which rule a descriptor matches, unlimited, replaces, shadow_mode,
// quota_mode, units and their lengths, hits_addend, and the status codes.
//
// # Differences
//
//   - The window slides, and only accepted cost is counted. A call is all or nothing: if one of its descriptors is
//     over its limit, no descriptor is charged.
//   - limit_remaining is for the sliding window. duration_until_reset is the time to the end of its current cell.
//   - An entry (key, value) is matched as a pair. In envoyproxy/ratelimit a rule with the key a_b also matches the
//     pair (a, b), because it joins both with "_" first.
//   - A limit that the descriptor itself carries applies in domains without rules too.
//   - A faulty call is invalid_argument, and the error names the fields. In envoyproxy/ratelimit the code is unknown.
package rls
