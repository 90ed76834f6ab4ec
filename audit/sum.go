package audit

// Add adds another's counts.
func (p *Pages) Add(o *Pages) { p.add(o) }

// Compared gives how many of the copied pages were compared.
func (c *Change) Compared() int64 { return c.sum() - c.NotCompared }
