// Package check compares everything below deploy/ that is not Go with its subject: metrics of dashboards, alerts and
// documents with the metrics that processes publish, options of containers and units with the options of programs, and
// all of it with the parsers of its own formats.
//
// It is a module of its own because of those parsers' dependencies.
package check
