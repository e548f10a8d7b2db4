package memstore

// CountsStats count what was asked of a Counts since it was made, and what it would
// have cost a database.
type CountsStats struct {
	Publishes, Imports, SettingsReads, Heartbeats int64 // calls, failed ones included

	RowsPublished int64 // rows of publications that were accepted
	ChunksRefused int64 // publications that failed with store.ErrRefused

	// What package mysqlcounts would have done with the same calls: statements sent;
	// rows of counts that the database examines for imports; rows of counts that a
	// publication adds or raises.
	Statements, RowsRead, RowsWritten int64
}

// Stats is a snapshot.
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
