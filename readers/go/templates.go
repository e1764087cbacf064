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

func readTemplateTable(c *cursor, count int) (*templateTable, error) {
	size, err := c.u32("templates")
	if err != nil {
		return nil, err
	}
	variables, err := c.u32("the number of variables")
	if err != nil {
		return nil, err
	}
	if variables > maxVariables {
		return nil, c.corrupt("%d variables", variables)
	}
	at := c.offset()
	body, err := c.take(int64(size), "templates")
	if err != nil {
		return nil, err
	}
	inner := &cursor{data: body, base: at, mem: c.mem}
	table := &templateTable{}
	if err := table.readVariables(inner, int(variables)); err != nil {
		return nil, err
	}
	if err := table.readTemplates(inner, count); err != nil {
		return nil, err
	}
	return table, inner.end("the templates of a column")
}

func (t *templateTable) readVariables(c *cursor, count int) error {
	kinds, err := readSizes(c, count, varString, varDate, "kinds of variables")
	if err != nil {
		return err
	}
	parameters, err := readSizes(c, count, 0, 18, "parameters of variables")
	if err != nil {
		return err
	}
	counts, err := readSizes(c, count, 0, maxEnumValues, "numbers of values of variables")
	if err != nil {
		return err
	}
	total := 0
	for i, kind := range kinds {
		v := variable{kind, parameters[i], total, counts[i]}
		if total += counts[i]; total > maxEnumValues || counts[i] > 0 && kind != varEnum || !v.possible() {
			return c.corrupt("variable %d of kind %d with parameter %d and %d values", i, kind, v.parameter, v.values)
		}
		t.variables = append(t.variables, v)
	}
	t.values, err = readTexts(c, total)
	return err
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

func (t *templateTable) readTemplates(c *cursor, count int) error {
	counts, err := readSizes(c, count, 0, maxSlots, "numbers of slots")
	if err != nil {
		return err
	}
	total := 0
	for _, slots := range counts {
		total += slots
	}
	if total > maxAllSlots {
		return c.corrupt("templates with %d slots", total)
	}
	slots, err := readSizes(c, total, 0, int64(len(t.variables))-1, "variables of slots")
	if err != nil {
		return err
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
	t.literals, err = readTexts(c, literal)
	return err
}
