// Package api is the operators' way in: the Connect service
// weir.control.v1.ControlService, with health and metrics on the same listener.
//
// It speaks Connect, gRPC and gRPC-Web; Connect's JSON makes every call a POST that
// curl can write:
//
//	curl -d '{}' -H 'Content-Type: application/json' \
//	  http://127.0.0.1:7080/weir.control.v1.ControlService/CleanupStatus
//
// There is no authentication yet. The listener belongs on loopback, and requests that
// a browser makes for another site are refused, by Origin and by Host.
//
// Every change needs an actor and a reason. Who makes it in MySQL writes the audit row
// in the same transaction; changes of the durable jobs send theirs along with the
// change, so the row may follow the answer by a moment.
//
// Errors: invalid_argument names the field and its bound; unavailable tells what does
// not answer and what to do; deadline_exceeded means that a change may still happen;
// everything else is internal, and logged.
package api
