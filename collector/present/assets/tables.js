// @ts-check
/** Sorting and filtering of tables, neighbours in graphs, forms that submit themselves, fragments that are refreshed. */
export {};
