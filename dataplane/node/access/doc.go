// Package access decides which callers a node accepts: Tokens are read from a file, and a token's Scope restricts calls
// to workspaces and actions.
//
// Package node requires a token before it reads a call, puts the token's Scope into the call's context, and makes the
// decision with the Limiter that Restrict returns for that scope.
package access
