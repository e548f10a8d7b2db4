// Package watch finds what a person should know of: nodes, relays, Redis, MySQL, Restate and the other jobs of the
// control plane.
//
// [Watch] looks once, [HealthDocument] is what looks in a row have found, and [HealthReader] answers with the newest
// document. [Diagnose] checks how the system is set up, for weirctl doctor.
package watch
