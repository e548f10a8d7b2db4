// Package scale tests and measures what only shows at the sizes of a large fleet, with the
// parts of both planes that meet at one database.
package scale
