// Package console is the operators' web console. The server renders the pages; one ES module updates live figures.
// There is no build step, and all files are embedded.
//
//	browser ── cookie ──> Console ── in process ──> api (the operators' service)
//
// The console calls only the operators' API, as the person who is signed in. A role can do the same here as with
// weirctl, and errors have the API's text. A page hides buttons that the viewer's role must not use, but the API is
// what enforces roles.
//
// People sign in with an API token. The browser gets a random session ID in a cookie that scripts cannot read and other
// sites cannot send. The server stores the token's hash, never the token, so a revoked token ends its sessions at their
// next request. The number and age of sessions are bounded. Every POST must come from a page of this console (Origin)
// and carry the session's token against forgery. If the API requires no tokens, which it allows on loopback only, the
// console requires no sign-in, and every page shows that.
//
// Live figures are server-sent events from one [pulse.Pulse], which reads the fleet once per beat, for any number of
// viewers. Other pages are rendered again when their data has changed, and the module replaces the parts that are
// marked as live.
//
// The content security policy allows no inline script and no inline style. Drawings are therefore SVG with attributes,
// and html/template escapes everything on a page.
package console
