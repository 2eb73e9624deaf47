// @ts-check
/** The timeline of one trace, on a canvas. */
export {};
