package audit

import "cowaudit/pagemap"

// page1 counts page a of the window, which lies in mapping m of process i.
func (l *ledger) count(i int, m *pagemap.Mapping, c *cell, a int) {
	s, r := l.side(i, a), l.refSide(i, a)
	if s.e.Guard() {
		c[cGuard]++
	}
	if !s.e.Held() {
		if m.Private() && l.anon(r.e) {
			c[l.missing(r)]++
		}
		return
	}
	l.resident(m, c, s.e)
	if u := l.w.Rows[i].Unstable; u != nil && u[a] {
		c[cUnstable]++
		return
	}
	word := l.word(i, m, a, s, r)
	c[word]++
	switch word {
	case cShared:
		if rr := l.ref[i]; rr >= 0 {
			l.hold(rr, a/stride, 1<<(a%stride))
		}
	case cUnknown:
		// A page in the swap cache that several processes have: one of those in swap, though it is not known which.
		if rr := l.ref[i]; rr >= 0 && l.visible && s.e.InSwap() && r.e.Present() {
			l.hold(rr, a/stride, 1<<(a%stride))
		}
	case cCopied:
		c[copiedBy(s, r, l.forked[i], func() bool { return l.siblingHas(i, a, s.e) }, func() bool { return l.olderShares(i, a, r.e) })]++
		words, known := int16(0), false
		if row := l.w.Rows[i].Words; row != nil {
			words, known = row[a], true
		}
		c[changeOf(words, known)]++
	case cNew:
		if m.Inode != 0 && m.Path != "/dev/zero" && m.HugePage == 0 {
			c[cNewFromFile]++
		}
	}
	l.cuts(i, c, a, s, word)
}

// resident counts the page as the kernel's own totals do.
func (l *ledger) resident(m *pagemap.Mapping, c *cell, e pagemap.Entry) {
	switch {
	case e.InSwap():
		c[cInSwap]++
	case m.HugePage > 0:
		c[cHugeTLB]++
	case e.Present() && !l.isZero(e) && !l.hugeZero(m, e):
		c[cResident]++
	}
}

// hugeZero reports a page of the huge zero page: it carries the file bit (fs/proc/task_mmu.c, pagemap_pmd_range_thp: not
// anonymous) where no file is mapped. The special mappings of the kernel ([vdso]) have pages of their own there.
func (l *ledger) hugeZero(m *pagemap.Mapping, e pagemap.Entry) bool {
	return e.File() && m.Private() && (m.Inode == 0 || m.Path == "/dev/zero") && !m.Special()
}

// word judges a held page.
func (l *ledger) word(i int, m *pagemap.Mapping, a int, s, r side) counter {
	switch {
	case !m.Private():
		return cFile
	case s.e.Transient():
		return cUnstable
	case l.hugeZero(m, s.e):
		return cZero
	case s.e.Present() && s.e.File():
		return cFile
	case !l.visible:
		return cUnknown
	case l.isZero(s.e):
		return cZero
	case s.e.InSwap() && !hasSlot(s.e):
		return cUnknown
	}
	if l.ref[i] < 0 {
		return l.rootWord(i, a, s)
	}
	return l.anonWord(s, r, l.forked[i], func() bool { return l.siblingHas(i, a, s.e) },
		func(slot, cached pagemap.Entry) bool { return l.otherSlot(i, a, slot, cached) })
}

func hasSlot(e pagemap.Entry) bool { _, ok := e.Slot(); return ok }

// rootWord judges an anonymous page of a process without a reference: whether another member of the family has it too.
func (l *ledger) rootWord(i, a int, s side) counter {
	switch {
	case isKSM(s):
		return cMerged
	case l.heldSet[i] && l.heldBy[i][a/stride]&(1<<(a%stride)) != 0, !s.exclusive() && l.elsewhere(i, a, s.e):
		return cShared
	case s.e.InSwap():
		return cSwapped
	}
	return cUnshared
}

// cuts counts what goes across the words: private pages, pages shared with others than the reference, distinct frames.
func (l *ledger) cuts(i int, c *cell, a int, s side, word counter) {
	anon := word != cFile && word != cZero
	if !s.e.Present() {
		if anon && (word != cShared || l.ref[i] < 0) {
			l.distinctAnon++
		}
		return
	}
	switch word {
	case cZero:
		return
	case cFile:
		if r := l.ref[i]; (r < 0 || !s.e.SamePage(l.entry(r, a))) && !l.earlier(i, a, s.e) {
			l.distinctFile++
		}
		return
	case cShared:
		if l.ref[i] < 0 {
			l.distinctAnon++
		}
		return
	}
	switch {
	case s.exclusive() && word != cMerged:
		c[cPrivate]++
		l.distinctAnon++
	case !l.visible:
	default:
		if !l.earlier(i, a, s.e) {
			l.distinctAnon++
		}
		if l.elsewhere(i, a, s.e) {
			if l.ref[i] >= 0 && word != cMerged {
				c[cSiblings]++
			}
		} else if word == cNew || word == cKept {
			c[cElsewhere]++
		}
	}
}

func (l *ledger) entry(i, a int) pagemap.Entry {
	if e := l.w.Rows[i].Entries; e != nil {
		return e[a]
	}
	return 0
}

// earlier reports whether a process before i in the family has the frame at this page of the window.
func (l *ledger) earlier(i, a int, e pagemap.Entry) bool {
	for j := range i {
		if l.audited[j] && e.SamePage(l.entry(j, a)) {
			return true
		}
	}
	return false
}
