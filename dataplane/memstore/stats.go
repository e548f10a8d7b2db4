package memstore

// CountsStats count the calls of a Counts since it was made, and their cost in a database.
type CountsStats struct {
	Publishes, Imports, SettingsReads, Heartbeats int64 // calls, including failed calls

	RowsPublished int64 // rows of publications that were accepted
	ChunksRefused int64 // publications that failed with store.ErrRefused

	// The work of package mysqlcounts for the same calls: statements sent; rows of counts that the database examines for
	// imports; rows of counts that a publication adds or raises.
	Statements, RowsRead, RowsWritten int64
}

// Stats returns a snapshot of the counters.
func (c *Counts) Stats() CountsStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Counts) count(change func(*CountsStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}
