// Package store defines the two layers above a node, and all that a limiter knows of
// them: the Origin, where the nodes of one region meet, and the CountStore, where regions
// meet, with the News that their relays exchange. Implementers of any of them need this package; an embedder hands an
// implementation to dataplane.Config and needs none of it.
//
// Package memstore keeps both layers in memory; redisorigin and mysqlcounts are the real
// ones. Package storetest holds every implementation to the contracts written here.
package store
