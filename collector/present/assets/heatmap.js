// @ts-check
/** Selection of a part of a heatmap. */
export {};
