// Package api is the operators' way in: the Connect service
// weir.control.v1.ControlService, with health and metrics on the same listener.
//
// It speaks Connect, gRPC and gRPC-Web; Connect's JSON makes every call a POST that
// curl can write:
//
//	curl -d '{}' -H 'Content-Type: application/json' \
//	  http://127.0.0.1:7080/weir.control.v1.ControlService/CleanupStatus
//
// With Config.RequireTokens every call needs a token (Authorization: Bearer …) with a sufficient
// role: a viewer reads, an operator changes, an admin also manages tokens. The
// actor of a change is then the token's name. Without RequireTokens the listener belongs on
// loopback, and requests that a browser makes for another site are refused, by Origin
// and by Host. Health and metrics need no token.
//
// Every change needs an actor and a reason. A change in MySQL, such as an override, writes its audit row
// in the same transaction. A change of durable work, such as a rollout's approval, sends its audit row to WeirAudit,
// so the row may follow the answer by a moment.
//
// Errors: invalid_argument names the field and its bound; failed_precondition names the state that refuses the call;
// unauthenticated and permission_denied are about the token; unavailable names the server that does
// not answer and what to do; deadline_exceeded means that a change may still happen;
// everything else is internal, and logged.
package api
