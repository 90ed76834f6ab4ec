package audit

import "cowaudit/pagemap"

// Questions about the other processes of the window.

// elsewhere reports whether another process than i has the frame at this page of the window.
func (l *ledger) elsewhere(i, a int, e pagemap.Entry) bool {
	for j := range l.w.Rows {
		if j != i && l.w.Rows[j].Entries != nil && l.audited[j] && e.SamePage(l.w.Rows[j].Entries[a]) {
			return true
		}
	}
	return false
}

// siblingHas is the same of those that have the frame from the reference of process i and not from it, nor it from them.
func (l *ledger) siblingHas(i, a int, e pagemap.Entry) bool {
	for j := range l.w.Rows {
		if j != i && l.w.Rows[j].Entries != nil && l.audited[j] && l.ref[j] == l.ref[i] && e.SamePage(l.w.Rows[j].Entries[a]) &&
			!l.descends(i, j) && !l.descends(j, i) {
			return true
		}
	}
	return false
}

// olderShares reports whether a process that was forked from the reference of process i before i shares the reference's page
// r.
func (l *ledger) olderShares(i, a int, r pagemap.Entry) bool {
	for _, j := range l.older[i] {
		if e := l.w.Rows[j].Entries; e != nil && l.anon(r) && e[a].SamePage(r) {
			return true
		}
	}
	return false
}

// otherSlot reports whether a process other than i and its reference has, at this page of the window, another swap slot
// than slot, or the page cached.
func (l *ledger) otherSlot(i, a int, slot, cached pagemap.Entry) bool {
	for j := range l.w.Rows {
		if j == i || j == l.ref[i] || l.w.Rows[j].Entries == nil || !l.audited[j] {
			continue
		}
		if e := l.w.Rows[j].Entries[a]; e.SamePage(cached) || e.InSwap() && !e.SamePage(slot) {
			return true
		}
	}
	return false
}
