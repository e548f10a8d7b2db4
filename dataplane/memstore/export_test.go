package memstore

// CountsSize returns the number of cells with components.
func CountsSize(c *Counts) int { return len(c.cells) }

// OriginSize returns the number of cells and changes, including expired cells.
func OriginSize(h *Origin) int { return len(h.shards[0].cells) + len(h.shards[0].changed) }
