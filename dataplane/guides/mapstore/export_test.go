package mapstore

// Len returns how many cells are stored.
func (o *Origin) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.cells)
}
