// Package store defines the layers above a node: the Origin, where the nodes of one region
// meet; the Feed that the relays of regions exchange, and the CountStore in which they keep counts
// for good; and the Settings that operators make. Implementers of any of them need this package; an embedder hands an
// implementation to dataplane.Config and needs none of it.
//
// Package memstore keeps all of them in memory; redisorigin and mysqlcounts are the real
// ones. Package storetest holds every implementation to the contracts written here.
package store
