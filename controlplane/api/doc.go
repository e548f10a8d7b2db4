// Package api is the operators' API: the Connect services of weir.control.v1, with health and metrics on the same
// listener.
//
// It supports Connect, gRPC and gRPC-Web. With Connect's JSON every call is a POST, for example with curl:
//
//	curl -d '{}' -H 'Content-Type: application/json' \
//	  http://127.0.0.1:7080/weir.control.v1.ControlService/CleanupStatus
//
// With Config.RequireTokens every call needs a token (Authorization: Bearer …) with a sufficient role: a viewer can
// read, an operator can also make changes, an admin can also manage tokens. The actor of a change is then the token's
// name. Without RequireTokens the service should listen on loopback only. Requests that a browser makes for another
// site are rejected, by Origin and by Host. Health and metrics need no token.
//
// Every change needs an actor and a reason. A change in MySQL, such as an override, writes its audit row in the same
// transaction. A change of durable work, such as a rollout's approval, sends its audit row to WeirAudit, so the row can
// appear shortly after the response.
//
// Errors: invalid_argument names the field and its bound. failed_precondition names the state that does not allow the
// call. unauthenticated and permission_denied are about the token. unavailable names the server that does not answer
// and the next step. After deadline_exceeded a change can still take effect. Every other error is internal and logged.
package api
