// Package tunings holds the versions and trials of the tuning as they are stored: those of the fleet, and those of
// regions that have one of their own.
package tunings
