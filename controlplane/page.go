package controlplane

// PageMax is the most overrides, namespaces or tokens in a listing.
const PageMax = 1000

// Page returns at most PageMax of the listed rows, and whether there are more. Callers must list PageMax + 1 rows.
func Page[T any](listed []T, err error) (rows []T, more bool, _ error) {
	if len(listed) > PageMax {
		return listed[:PageMax], true, err
	}
	return listed, false, err
}
