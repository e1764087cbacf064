package esdb

const (
	maxTemplates  = 4096
	maxVariables  = 4096
	maxEnumValues = 131072
	maxSlots      = 1024 // of one template
	maxAllSlots   = 131072
)

// The kinds of variables of section 9.
const (
	varString  = 0
	varEnum    = 1
	varInteger = 2
	varPadded  = 3
	varDecimal = 4
	varHex     = 5
	varDate    = 6
)

// variable is what slots of templates show.
type variable struct {
	kind       int
	parameter  int
	firstValue int // of ENUM: its first value among the texts of the table
	values     int // of ENUM: how many it has
}

// template is a sequence of literals with slots between them.
type template struct {
	firstLiteral int
	slots        []int // numbers of variables
	shows        []int // the same, each once
}

// templateTable is the templates of a column, from its dictionary block (section 14).
type templateTable struct {
	variables []variable
	values    *texts
	templates []template
	literals  *texts
}

func readTemplateTable(c *cursor, count int) *templateTable {
	size, variables := int64(c.word(4, "templates")), int(c.word(4, "the number of variables"))
	if variables > maxVariables {
		c.fail("%d variables", variables)
	}
	inner := &cursor{base: c.offset(), data: c.take(size, "templates"), mem: c.mem, err: c.err}
	table := &templateTable{}
	table.readVariables(inner, variables)
	table.readTemplates(inner, count)
	c.err = inner.end("the templates of a column")
	return table
}

func (t *templateTable) readVariables(c *cursor, count int) {
	kinds := readSizes(c, count, varString, varDate, "kinds of variables")
	parameters := readSizes(c, count, 0, 18, "parameters of variables")
	counts := readSizes(c, count, 0, maxEnumValues, "numbers of values of variables")
	total := 0
	for i := 0; i < count && c.err == nil; i++ {
		v := variable{kinds[i], parameters[i], total, counts[i]}
		if total += v.values; total > maxEnumValues || v.values > 0 && v.kind != varEnum || !v.possible() {
			c.fail("variable %d of kind %d with parameter %d and %d values", i, v.kind, v.parameter, v.values)
		}
		t.variables = append(t.variables, v)
	}
	t.values = readTexts(c, total)
}

// possible says whether the parameter is one for the kind.
func (v variable) possible() bool {
	switch v.kind {
	case varPadded, varDecimal:
		return v.parameter >= 1
	case varHex:
		return v.parameter >= 1 && v.parameter <= 16
	case varDate:
		return v.parameter < len(dateForms)
	}
	return v.parameter == 0
}

func (t *templateTable) readTemplates(c *cursor, count int) {
	counts := readSizes(c, count, 0, maxSlots, "numbers of slots")
	total := 0
	for _, slots := range counts {
		total += slots
	}
	if total > maxAllSlots {
		c.fail("templates with %d slots", total)
	}
	slots := readSizes(c, total, 0, int64(len(t.variables))-1, "variables of slots")
	if c.err != nil {
		return
	}
	literal := 0
	for _, n := range counts {
		made := template{firstLiteral: literal, slots: slots[:n]}
		seen := map[int]bool{}
		for _, variable := range made.slots {
			if !seen[variable] {
				seen[variable] = true
				made.shows = append(made.shows, variable)
			}
		}
		t.templates = append(t.templates, made)
		literal, slots = literal+n+1, slots[n:]
	}
	t.literals = readTexts(c, literal)
}
