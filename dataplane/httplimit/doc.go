// Package httplimit applies limits to requests of net/http, and shows callers how much is left. Package connectlimit
// does the same for Connect, with the same policies.
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
// All policies apply to a request at once: it passes and is counted by each, or is denied and counted by none. The
// answer shows:
//
//   - RateLimit-Policy and RateLimit in the form of draft-ietf-httpapi-ratelimit-headers-11, lists of structured fields
//     with an item for each policy;
//   - on denial 429, Retry-After, and a body of application/problem+json that names the violated policies; 503 if the
//     limiter itself cannot decide (an outage policy of closed);
//   - X-RateLimit-Limit, -Remaining and -Reset if Config.Legacy is set, in either of their dialects.
//
// A policy whose namespace is in shadow mode lets everything pass. It is not shown in the fields of a request that it
// would have denied.
package httplimit
