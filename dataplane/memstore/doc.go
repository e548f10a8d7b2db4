// Package memstore keeps the layers above a limiter in memory: an Origin or a Cluster, which the nodes and the relay of
// a region share; Feed and Counts, which the relays of regions share; and in Counts the Settings. They pass the same
// suites in storetest as all other implementations. Use them for a single process with several limiters, in a
// simulator, or in tests, which can make them fail, delay calls, or lose replies and data: see Faults.
//
// Not guaranteed: the data ends with the process, and no other process can use it. All methods are safe for concurrent
// use and no goroutine is started. Entries that have expired are invisible at once, and later calls remove them, so
// memory stays within about twice the live data. Time is the clock of the options (time.Now unless set), and waiting is
// on timers of package time, so that both run in a testing/synctest bubble.
package memstore
