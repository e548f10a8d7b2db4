// Package tunings holds the versions and trials of the tuning as they are stored: of the fleet, and of regions that have
// one of their own.
package tunings
