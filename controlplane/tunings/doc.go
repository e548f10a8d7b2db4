// Package tunings holds the stored versions and trials of the tuning: the fleet's, and those of regions with a tuning
// of their own.
package tunings
