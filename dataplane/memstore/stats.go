package memstore

// CountsStats count what was asked of a Counts since it was made, and what it would
// have cost a database.
type CountsStats struct {
	Publishes, Imports, SettingsReads, Heartbeats int64 // calls, failed ones included
	DigestsPublished, DigestReads                 int64 // the same

	RowsPublished int64 // rows of publications that were accepted
	RowsGrown     int64 // those among them that changed a count
	RowsTouched   int64 // rows sent again because they became visible late
	CellsImported int64 // cells that were yielded
	FullImports   int64 // imports that read all rows
	DigestsRead   int64 // digests that were yielded
	ChunksRefused int64 // publications that failed with store.ErrRefused

	// What package mysqlcounts would have done with the same calls: statements sent;
	// rows of counts and digests, and entries of the index of changes, that the
	// database examines for imports and digests; rows of counts and digests that it
	// changes on disk.
	Statements, RowsRead, RowsWritten int64
	DigestRowsRead, DigestRowsWritten int64 // the part of both that is digests
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
