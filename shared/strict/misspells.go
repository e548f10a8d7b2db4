package strict

import "strings"

// Misspells reports whether a name differs from a known name by so little that it is a slip for it: by one letter, or
// by two if the known name has seven letters or more. The case of letters counts as no difference.
func Misspells(name, known string) bool {
	const long = 7
	most := 1
	if len(known) >= long {
		most = 2
	}
	a, b := strings.ToLower(name), strings.ToLower(known)
	return name != known && max(len(a), len(b))-min(len(a), len(b)) <= most && distance(a, b) <= most
}

// distance returns the number of letters to insert, to delete, to replace or to swap with their neighbour that make b
// of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
