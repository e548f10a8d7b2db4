package memstore

// OriginSize is how many cells are kept, those included that have expired.
func OriginSize(o *Origin) int { return len(o.totals) }

// CountsSize is the same for cells of which components are kept.
func CountsSize(c *Counts) int { return len(c.cells) }
