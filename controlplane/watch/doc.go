// Package watch finds problems that people should look at: of nodes, relays, Redis, MySQL, Restate and the other jobs
// of the control plane.
//
// [Watch] looks once, a [HealthDocument] collects the findings of successive looks, and [HealthReader] returns the
// newest document. [Diagnose] checks how the system is set up, for weirctl doctor.
package watch
