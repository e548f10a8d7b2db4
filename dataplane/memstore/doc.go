// Package memstore keeps the layers above a limiter in memory: an Origin, where the nodes
// of a region and its relay meet, or a Cluster; Feed and Counts, where the relays of regions meet; and in
// Counts the Settings.
// They are implementations like any other, held to the same suites in storetest:
// for a single process with several limiters, for the simulator, and for tests,
// which can make them slow, wrong or forgetful through their Faults.
//
// What they give up: nothing outlives the process, and nothing outside of it sees
// them. All methods are safe for concurrent use and no goroutine is started; what
// has expired is invisible at once and removed in passing, so memory stays within
// about twice what is alive. Time is the clock of the options (time.Now unless
// set), and waiting is on timers of package time, so that both run in a
// testing/synctest bubble.
package memstore
