package sim

import (
	"fmt"
	"io"

	"github.com/weirhq/weir/dataplane/store"
)

// WindowTable is the reports of the scenario arrivals with each kind of window.
type WindowTable struct{ Cells, Precise Report }

// CompareWindows runs the scenario arrivals with each kind of window. It ignores Options.Window.
func CompareWindows(o Options) (t WindowTable, err error) {
	o.Window = store.WindowCells
	if t.Cells, err = Run(arrivalsScenario(), o); err != nil {
		return t, err
	}
	o.Window = store.WindowPrecise
	t.Precise, err = Run(arrivalsScenario(), o)
	return t, err
}

// WriteText writes the table as Markdown. For each kind of window it has the largest real window divided by the limit,
// and the admitted cost divided by that of an exact log.
func (t WindowTable) WriteText(w io.Writer) error {
	_, err := fmt.Fprint(w, "| arrivals | cells: worst real window | cells: admitted | precise: worst real window | "+
		"precise: admitted |\n|---|---|---|---|---|\n")
	for i := range t.Cells.Groups {
		c, p := &t.Cells.Groups[i], &t.Precise.Groups[i]
		if err == nil {
			_, err = fmt.Fprintf(w, "| %s | %.2f | %.3f | %.2f | %.3f |\n", c.Name, c.RealWindowOverLimit, c.AdmittedOverLog,
				p.RealWindowOverLimit, p.AdmittedOverLog)
		}
	}
	return err
}
