// A page of sections: its tables sort.
document.querySelectorAll("main table").forEach(sortable);
