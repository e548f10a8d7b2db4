// Package routes serves a limiter over the HTTP routes that clients of Unkey's
// ratelimit API call, so that the npm packages @unkey/ratelimit and @unkey/api work
// with weir-node through their base-URL option:
//
//	POST /v2/ratelimit.limit           decides a request
//	POST /v2/ratelimit.multiLimit      decides several requests together
//	POST /v2/ratelimit.setOverride     sets the limit of an identifier or pattern
//	POST /v2/ratelimit.getOverride
//	POST /v2/ratelimit.listOverrides
//	POST /v2/ratelimit.deleteOverride
//
// A response is {"meta":{"requestId"},"data"}, an error {"meta","error":{"title", "detail","status","type"}}, as
// application/json. Only 429 is application/problem+json. A denial is not an error: 200 with "success":false.
//
// The program that mounts a Service decides which callers are allowed, and whether there is room for the call. It must
// reject calls with Refuse, so that errors have the same format.
package routes
