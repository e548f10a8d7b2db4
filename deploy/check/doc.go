// Package check holds everything below deploy/ that is not Go against what it talks
// about: metrics of dashboards, alerts and documents against those that the processes
// publish, options of containers and units against those that the programs take, and all
// of it against the parsers of its own formats.
//
// It has a module of its own for the sake of those parsers.
package check
