// Package console is the operators' web console: pages rendered here, one ES module, no
// build step, everything embedded.
//
//	browser ── cookie ──> Console ── in process ──> api (the operators' service)
//
// It speaks to the operators' API and to nothing else, as the person who is signed in: what a
// role may not do by weirctl it may not do here, and errors are shown in the API's words.
// A button that is missing for a viewer is a courtesy; the API is what refuses.
//
// People sign in with an API token. The browser gets a random session id in a cookie that
// scripts cannot read and other sites cannot send; the server keeps the token's hash, so
// that a token that is revoked ends its sessions with their next request, and never the
// token. Sessions are bounded in number and age. Every POST must come from a page of ours
// (Origin) and carry the session's token against forgery. Where the API asks for no
// tokens, which it does on loopback only, the console asks for none, and says so on every
// page.
//
// Live figures come by server-sent events from one [Pulse], which asks for the fleet once
// a beat however many are watching. Other pages are rendered anew when what they show has
// changed, and the module swaps the parts that are marked as live.
//
// The content security policy admits no inline script and no inline style, so drawings
// are SVG with attributes, and everything a page says is escaped by html/template.
package console
