// Package httplimit holds requests of net/http to limits, and tells callers where
// they stand. Package connectlimit does the same for Connect, with the same policies.
//
//	guard, err := httplimit.New(httplimit.Config{
//		Limiter: limiter,
//		Policies: []httplimit.Policy{{
//			Name: "per-user", Workspace: "acme", Namespace: "api",
//			Key:   httplimit.Header("X-Api-Key"),
//			Quota: httplimit.Quota{Limit: 100, Duration: time.Minute},
//		}},
//	})
//	http.Handle("/", guard.Handler(api))
//
// A request is held to all policies at once: it passes and is counted by each, or is
// denied and counted by none. What callers are told:
//
//   - RateLimit-Policy and RateLimit as draft-ietf-httpapi-ratelimit-headers-11 has
//     them, lists of structured fields with an item for each policy;
//   - on denial 429, Retry-After, and a body of application/problem+json that names
//     the violated policies; 503 where the limiter itself says that it cannot know
//     (an outage policy of closed);
//   - X-RateLimit-Limit, -Remaining and -Reset on wish, in either of their dialects.
//
// A policy whose namespace is in shadow mode lets everything pass and is not shown in
// the fields of a request that it would have denied.
package httplimit
