// Package scale tests and measures effects that only show at the sizes of a large fleet, with the parts of both planes
// that meet at the database.
package scale
