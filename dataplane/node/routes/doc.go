// Package routes serves a limiter over the HTTP routes that clients of Unkey's
// ratelimit API call, so that the npm packages @unkey/ratelimit and @unkey/api work
// with weir-node through their base-URL option:
//
//	POST /v2/ratelimit.limit           may this pass?
//	POST /v2/ratelimit.multiLimit      may all of these pass, as one?
//	POST /v2/ratelimit.setOverride     from now on this identifier, or pattern, has another limit
//	POST /v2/ratelimit.getOverride
//	POST /v2/ratelimit.listOverrides
//	POST /v2/ratelimit.deleteOverride
//
// An answer is {"meta":{"requestId"},"data"}, an error {"meta","error":{"title",
// "detail","status","type"}}, of application/json; 429 is of application/problem+json.
// A denial is no error: 200 with "success":false.
//
// The program that mounts a Service decides who may call, and whether there is room for the
// call: it refuses calls by Refuse, in the same form.
package routes
