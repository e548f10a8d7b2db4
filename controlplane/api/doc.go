// Package api is the operators' way in: the Connect service
// weir.control.v1.ControlService, with health and metrics on the same listener.
//
// It speaks Connect, gRPC and gRPC-Web; Connect's JSON makes every call a POST that
// curl can write:
//
//	curl -d '{}' -H 'Content-Type: application/json' \
//	  http://127.0.0.1:7080/weir.control.v1.ControlService/CleanupStatus
//
// With Config.RequireTokens every call shows a token (Authorization: Bearer …), whose
// role must suffice: a viewer looks, an operator changes, an admin makes tokens. The
// actor of a change is then the token's name. Without it the listener belongs on
// loopback, and requests that a browser makes for another site are refused, by Origin
// and by Host. Health and metrics ask for nothing.
//
// Every change needs an actor and a reason. Who makes it in MySQL writes the audit row
// in the same transaction; changes of the durable jobs send theirs along with the
// change, so the row may follow the answer by a moment.
//
// Errors: invalid_argument names the field and its bound; failed_precondition says how
// things stand; unauthenticated and permission_denied are about the token; unavailable tells what does
// not answer and what to do; deadline_exceeded means that a change may still happen;
// everything else is internal, and logged.
package api
