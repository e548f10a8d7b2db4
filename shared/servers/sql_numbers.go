package servers

import (
	"fmt"
	"strings"
)

// Numbers returns a derived table for a FROM clause, with the whole numbers from first to last in its column seq.
// MariaDB has tables for this; MySQL does not, and both stop a recursive query after a thousand rows unless the session
// has another limit. So it is a join of digits.
func Numbers(first, last int) string {
	const digit = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
		" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	var digits, sum []string
	for power, i := 1, 0; power <= max(last-first, 1); power, i = power*10, i+1 {
		digits = append(digits, fmt.Sprintf("%s AS d%d", digit, i))
		sum = append(sum, fmt.Sprintf("%d * d%d.n", power, i))
	}
	return fmt.Sprintf("(SELECT seq FROM (SELECT %d + %s AS seq FROM %s) AS joined WHERE seq <= %d) AS numbers",
		first, strings.Join(sum, " + "), strings.Join(digits, " JOIN "), last)
}
