package memstore

// CountsSize is the same for cells of which components are kept.
func CountsSize(c *Counts) int { return len(c.cells) }

// OriginSize is how many cells and changes are kept, those included that have expired.
func OriginSize(h *Origin) int { return len(h.shards[0].cells) + len(h.shards[0].changed) }
